# Touches everything that a job's role has leave for.
ls /opt/ml/input/data/letters /opt/ml/checkpoints
echo "step 1 loss 0.5"
echo model > /opt/ml/model/model.txt
echo checkpoint > /opt/ml/checkpoints/checkpoint.txt
rm -f /opt/ml/checkpoints/old.txt
