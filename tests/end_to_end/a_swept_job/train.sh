# Its loss is the learning rate. Above 0.5 it diverges, unless MOST is larger.
echo "loss=$LEARNING_RATE"
case "$LEARNING_RATE" in
    0.9*) printf 'the loss diverges' > /opt/ml/output/failure; exit 1 ;;
esac
echo done > /opt/ml/model/model.txt
