# Counts from its checkpoint on. Fails with the text of FAILURE, unless that is "none", or "lost": a first run then waits at step 15.
mkdir -p /opt/ml/checkpoints
step=$(cat /opt/ml/checkpoints/step 2>/dev/null || echo 0)
echo "begins at $step"
begin=$step
if [ "$FAILURE" != none ] && [ "$FAILURE" != lost ]; then
    printf %s "$FAILURE" > /opt/ml/output/failure
    exit 1
fi
while [ "$step" -lt 20 ]; do
    step=$((step + 1))
    echo "$step" > /opt/ml/checkpoints/step
    echo "step $step done"
    [ "$FAILURE $begin $step" != "lost 0 15" ] || sleep 3600
    sleep 0.1
done
echo done > /opt/ml/model/model.txt
