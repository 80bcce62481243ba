llamafactory-cli chat cust/train_llama3_lora_sft.yaml
