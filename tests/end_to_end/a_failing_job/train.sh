# Counts from its checkpoint on. Fails with the text of FAILURE, unless that is "none", or "lost": a first run then waits at step 15.
# With "endless", "diverges" and "silent" it counts until it is stopped, and then writes a last checkpoint.
mkdir -p /opt/ml/checkpoints
step=$(cat /opt/ml/checkpoints/step 2>/dev/null || echo 0)
echo "begins at $step"
begin=$step
if [ "$FAILURE" = endless ] || [ "$FAILURE" = diverges ] || [ "$FAILURE" = silent ]; then
    trap 'echo "$step" > /opt/ml/checkpoints/step; echo "stopped at $step"; exit 0' TERM
    while :; do
        step=$((step + 1))
        [ "$FAILURE" = silent ] || echo "step $step done"
        [ "$FAILURE" != diverges ] || echo "loss=50.0"
        sleep 0.2
    done
fi
if [ "$FAILURE" != none ] && [ "$FAILURE" != lost ]; then
    printf %s "$FAILURE" > /opt/ml/output/failure
    exit 1
fi
wait_for_the_end() {
    trap 'exit 0' TERM
    sleep 3600 &
    wait
}
while [ "$step" -lt 20 ]; do
    step=$((step + 1))
    echo "$step" > /opt/ml/checkpoints/step
    echo "step $step done"
    [ "$FAILURE $begin $step" != "lost 0 15" ] || wait_for_the_end
    sleep 0.1
done
echo done > /opt/ml/model/model.txt
