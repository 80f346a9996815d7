#!/bin/bash
N=8
export LR=1e-6
trl grpo --num_generations $N --learning_rate ${LR} \
  --beta 0.0 --max_steps $((N * 100)) --report_to none
