# Counts to STEPS from its checkpoint on, with a loss that follows from the one before, and leaves each step in its model.
# In an attempt before LAST, and in as many starts of that as INTERRUPTIONS, it waits after a step for its host to be lost.
# FAILURE is "none"; "after 5 20", which waits for one after these steps; "endless"; "loss=...", which logs that until it is stopped;
# "large", which writes 4 MB; else the text with which the last attempt fails.
trap 'exit 0' TERM
steps=/opt/ml/checkpoints/steps
starts=/opt/ml/checkpoints/starts
mkdir -p /opt/ml/checkpoints
touch "$steps"
step() {
    set -- $(tail -n 1 "$steps")
    echo "$((${1:-0} + 1)) $(((${2:-1} * 69069 + 1) % 65536))" >> "$steps"
    echo "step $((${1:-0} + 1)) done"
}
steps_left() {
    [ "$(wc -l < "$steps")" -lt "$STEPS" ]
}
await_a_fault() {
    sleep 3600 &
    wait $!
}
if [ "${TRAINING_JOB_NAME##*-}" -lt "$LAST" ]; then
    step
    await_a_fault
fi
echo started >> "$starts"
if [ "$(wc -l < "$starts")" -le "$INTERRUPTIONS" ]; then
    step
    await_a_fault
fi
case $FAILURE in
none) ;;
after*)
    while steps_left; do
        step
        case "$FAILURE " in *" $(wc -l < "$steps") "*) await_a_fault ;; esac
    done
    ;;
endless)
    step
    await_a_fault
    ;;
loss=*)
    while :; do
        echo "$FAILURE"
        sleep 0.2
    done
    ;;
large)
    step
    head -c 4000000 /dev/zero > /opt/ml/model/large
    ;;
*)
    step
    printf %s "$FAILURE" > /opt/ml/output/failure
    exit 1
    ;;
esac
while steps_left; do step; done
cp "$steps" /opt/ml/model/steps
