python3 -m verl.trainer.main config=grpo_example.yaml
