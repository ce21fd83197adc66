#!/usr/bin/env bash
# In place of the script of AWS's PyTorch containers, which gives the host the name that its job has for it: here the scripts are
# told which network interface to use (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME).
exec "$@"
