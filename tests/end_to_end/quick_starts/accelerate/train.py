import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for epoch in range(3):
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
