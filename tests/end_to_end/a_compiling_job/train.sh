# Says what it was asked for, and fails where that is to fail.
echo "ahead ${RUN_NEURON_PARALLEL_COMPILE:-0} cache $NEURON_COMPILE_CACHE_URL"
cat /opt/ml/input/config/hyperparameters.json
! grep -q '"do": *"fail"' /opt/ml/input/config/hyperparameters.json
