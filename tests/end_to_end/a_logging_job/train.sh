# Prints a loss for each of the hyperparameter's steps, a tenth of a second apart, and leaves a checkpoint and a model. -1 steps fail.
steps=$(grep -o '"steps": *"[^"]*"' /opt/ml/input/config/hyperparameters.json | grep -o '[-0-9]*"$' | tr -d '"')
trap 'echo "told to stop"; echo "$step" > /opt/ml/checkpoints/stopped.txt; exit 0' TERM
mkdir -p /opt/ml/checkpoints
# As SageMaker's training toolkit does.
echo "SM_RESOURCE_CONFIG=$(tr -d '\n' < /opt/ml/input/config/resourceconfig.json)"
[ "$steps" -ge 0 ] || { echo "the steps must not be negative"; exit 3; }
echo "begins with $(ls /opt/ml/checkpoints | tr '\n' ' ')"
step=0
while [ "$step" -lt "$steps" ]; do
    step=$((step + 1))
    echo "step $step loss $((100 / step))"
    echo "$step" > /opt/ml/checkpoints/step.txt
    sleep 0.1
done
echo "$step" > /opt/ml/model/model.txt
