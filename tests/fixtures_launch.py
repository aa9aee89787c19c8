"""How tests start several processes on CPUs; each launch has a port of its own, so that tests can run side by side."""

ACCELERATE = ("-m", "accelerate.commands.launch", "--main_process_port=0", "--multi_gpu", "--num_processes")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
