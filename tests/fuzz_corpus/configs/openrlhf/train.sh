python3 -m openrlhf.cli.train_ppo_ray \
  --init_kl_coef 1e-3 --n_samples_per_prompt 8 --advantage_estimator group_norm \
  --eps_clip_low_high 0.2 0.28 --temperature 1.0
