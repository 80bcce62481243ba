import mii

client = mii.serve(
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    tensor_parallel=8,
    replica_num=2,
    hostfile="tmp/hostfile",
)
