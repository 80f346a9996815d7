set -x
max=1024
python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo data.max_response_length=$((max * 2)) \
  actor_rollout_ref.actor.clip_ratio_high=0.28 actor_rollout_ref.rollout.n=8 \
  +actor_rollout_ref.actor.entropy_coeff=0 $@
