from trl import GRPOConfig
N = 8
common = dict(beta=0.0, epsilon=0.2)
config = GRPOConfig(num_generations=N, learning_rate=1e-6 * 2, loss_type='dapo', **common, max_steps=int(x))
