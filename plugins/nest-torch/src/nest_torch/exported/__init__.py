"""Programs that `torch.export` traced and somebody's script wrote down, node by node."""
