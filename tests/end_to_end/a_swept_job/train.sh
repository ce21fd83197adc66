# Its loss is the learning rate; it fails from 0.9 on, and with 0 it goes on until it is stopped.
echo "loss=$LEARNING_RATE"
case "$LEARNING_RATE" in
    0.9*) printf 'the loss diverges' > /opt/ml/output/failure; exit 1 ;;
    0) trap 'exit 143' TERM; while :; do sleep 0.2; done ;;
esac
echo done > /opt/ml/model/model.txt
