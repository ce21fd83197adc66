"""ResNet (He et al., https://arxiv.org/abs/1512.03385) in plain PyTorch, with the stride in the 3 x 3 convolution ("v1.5").

Parameters have torchvision's names and shapes, so that its weights of ``resnet50`` load with ``load_state_dict``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

DEPTHS = {26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # blocks of each stage
EXPANSION = 4  # a bottleneck's channels out, by those of its 3 x 3 convolution


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = EXPANSION * channels
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, images: Tensor) -> Tensor:
        found = self.relu(self.bn1(self.conv1(images)))
        found = self.relu(self.bn2(self.conv2(found)))
        added: Tensor = self.relu(self.bn3(self.conv3(found)) + self.downsample(images))
        return added


class ResNet(nn.Module):
    """Images, float [n, 3, height, width], to the logits of ``classes`` [n, classes]."""

    def __init__(self, blocks: Sequence[int] = DEPTHS[50], classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels_in = width
        for stage, count in enumerate(blocks, start=1):
            channels = width * 2 ** (stage - 1)
            strides = [1 if stage == 1 else 2] + [1] * (count - 1)
            made = []
            for stride in strides:
                made.append(Bottleneck(channels_in, channels, stride))
                channels_in = EXPANSION * channels
            setattr(self, f"layer{stage}", nn.Sequential(*made))
        self.stages = len(blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels_in, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Bottleneck):  # each block begins as its shortcut (https://arxiv.org/abs/1706.02677)
                nn.init.zeros_(module.bn3.weight)

    def forward(self, images: Tensor) -> Tensor:
        found = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in range(1, self.stages + 1):
            found = getattr(self, f"layer{stage}")(found)
        logits: Tensor = self.fc(self.avgpool(found).flatten(1))
        return logits
