"""Files that start jobs: shell and Slurm scripts, Kubernetes and cloud manifests.

A launcher says what is started (a program with its flags, or the config file it is given) and on what (GPUs, nodes,
host memory). Nothing is executed: a command line is split as a shell would split it, and what only the shell could know
stays unknown.
"""
