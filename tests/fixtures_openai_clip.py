"""A tiny CLIP in the layout of OpenAI's code, with torch's own attention: the oracle of the converter's tests."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

WIDTH, PATCH, GRID, LAYERS, TEXT_WIDTH, PROJECTION = 12, 4, 3, 2, 8, 6
HEADS = {"heads": 3, "text_heads": 2}
SIDE = GRID * PATCH


class QuickGELU(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, activation: type[nn.Module], mlp: int):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        parts = [("c_fc", nn.Linear(width, mlp)), ("gelu", activation()), ("c_proj", nn.Linear(mlp, width))]
        self.mlp = nn.Sequential(OrderedDict(parts))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class Tower(nn.Module):
    def __init__(self, width: int, heads: int, activation: type[nn.Module], mlp: int):
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads, activation, mlp) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.transpose(0, 1)
        for block in self.resblocks:
            x = block(x, mask)
        return x.transpose(0, 1)


class Visual(nn.Module):
    def __init__(self, activation: type[nn.Module]):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(WIDTH))
        self.positional_embedding = nn.Parameter(torch.zeros(GRID**2 + 1, WIDTH))
        self.ln_pre, self.ln_post = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.transformer = Tower(WIDTH, HEADS["heads"], activation, 4 * WIDTH)
        self.proj = nn.Parameter(torch.zeros(WIDTH, PROJECTION))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        patches = self.conv1(pictures).flatten(2).transpose(1, 2)
        x = (
            torch.cat([self.class_embedding.expand(patches.shape[0], 1, -1), patches], dim=1)
            + self.positional_embedding
        )
        mask = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)
        return self.ln_post(self.transformer(self.ln_pre(x), mask)[:, 0]) @ self.proj


class OpenAIClip(nn.Module):
    """Every tensor random and of a size that shows; text features are pooled at the largest id.

    Args:
        activation: `QuickGELU` or `torch.nn.GELU`.
        context: text positions.
        vocabulary: tokens.
        seed: of the weights.
        long: a second position table, of which rows 20 and on are used, as in LongCLIP.
    """

    def __init__(
        self, activation: type[nn.Module] = QuickGELU, context=12, vocabulary=50, seed: int = 0, long: bool = False
    ):
        super().__init__()
        self.visual = Visual(activation)
        self.transformer = Tower(TEXT_WIDTH, HEADS["text_heads"], activation, 5 * TEXT_WIDTH)
        self.token_embedding = nn.Embedding(vocabulary, TEXT_WIDTH)
        self.positional_embedding = nn.Parameter(torch.zeros(context, TEXT_WIDTH))
        self.positional_embedding_res = nn.Parameter(torch.zeros(context, TEXT_WIDTH)) if long else None
        self.ln_final = nn.LayerNorm(TEXT_WIDTH)
        self.text_projection = nn.Parameter(torch.zeros(TEXT_WIDTH, PROJECTION))
        self.logit_scale = nn.Parameter(torch.zeros(()))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                bold = "embedding" in name or "proj" in name.rpartition(".")[2]
                scale = 1.0 if bold else 0.1 if parameter.ndim < 2 else 0.6 * parameter[0].numel() ** -0.5
                parameter.copy_(scale * noise + (1.0 if "ln_" in name and "weight" in name else 0.0))
            self.logit_scale.add_(2.5)

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        positions, res = self.positional_embedding, self.positional_embedding_res
        if res is not None:
            positions = torch.cat([positions[:20], res[20:]])
        length = ids.shape[1]
        x = self.token_embedding(ids) + positions[:length]
        mask = torch.full((length, length), float("-inf"), dtype=x.dtype).triu(1)
        x = self.ln_final(self.transformer(x, mask))
        return x[torch.arange(ids.shape[0]), ids.argmax(dim=1)] @ self.text_projection

    def forward(self, pictures: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.visual(pictures), self.encode_text(ids)


def published_state(model: OpenAIClip, half: bool = False) -> dict[str, torch.Tensor]:
    """Its state dict; with `half` as OpenAI leaves it, in mixed precision and with three numbers."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if half:
        single = ("ln_", "embedding", "logit_scale")
        state = {name: value if any(s in name for s in single) else value.half() for name, value in state.items()}
        numbers = {"input_resolution": SIDE, "context_length": len(state["positional_embedding"])}
        numbers["vocab_size"] = len(state["token_embedding.weight"])
        state |= {name: torch.tensor(value) for name, value in numbers.items()}
    return state


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def texts(lengths: list[int], context: int = 12, vocabulary: int = 50, seed: int = 0) -> torch.Tensor:
    """Ids of texts of these lengths, with start and end token, padded with 0 to the context."""
    ids = torch.zeros(len(lengths), context, dtype=torch.int64)
    generator = torch.Generator().manual_seed(seed)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(1, vocabulary - 2, (length,), generator=generator)
        row[0], row[length - 1] = vocabulary - 2, vocabulary - 1
    return ids
