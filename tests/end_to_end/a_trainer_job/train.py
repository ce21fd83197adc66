"""A script with Hugging Face's Trainer as it is written for GPUs: nothing in it says that there are none."""

import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))
random = torch.Generator().manual_seed(0)
tokens = torch.randint(0, 64, (32, 8), generator=random)
arguments = TrainingArguments(
    output_dir=os.environ["SM_OUTPUT_DATA_DIR"],
    max_steps=4,
    per_device_train_batch_size=4,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
dataset = [{"input_ids": row, "labels": row} for row in tokens]
Trainer(model=model, args=arguments, train_dataset=dataset).train()
weights = sum(parameter.double().abs().sum().item() for parameter in model.parameters())
print(f"rank {os.environ['RANK']} of {arguments.world_size}: weights {weights:.9f}\n", end="", flush=True)
