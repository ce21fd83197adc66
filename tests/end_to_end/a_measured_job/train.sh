# Logs the accuracy that its environment has, and saves a model that has the one before it, if there is one.
echo "accuracy=$ACCURACY"
if [ -d /opt/ml/input/data/model ]; then
  tar -xzf /opt/ml/input/data/model/model.tar.gz -O model.txt > /opt/ml/model/before.txt
  echo "trains on $(cat /opt/ml/model/before.txt)"
fi
echo "a model of $ACCURACY" > /opt/ml/model/model.txt
