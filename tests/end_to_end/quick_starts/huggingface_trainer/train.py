from dataclasses import dataclass, field

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    hidden_size: int = field(default=32)


class Text(torch.utils.data.Dataset):
    def __init__(self, length):
        self.ids = torch.randint(0, 100, (length, 16))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def main():
    model_args, training_args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    config = LlamaConfig(
        hidden_size=model_args.hidden_size,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=128,
    )
    trainer = Trainer(model=LlamaForCausalLM(config), args=training_args, train_dataset=Text(64))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
