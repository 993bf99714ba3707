"""Attention as textbooks write it out, five times; then where the weights are needed, and beside a fused kernel."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class PackedHeads(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attn_drop = nn.Dropout(0.1)

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q @ k.transpose(-2, -1)) * self.scale  # surely
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        return (attn @ v).transpose(1, 2).reshape(b, n, c)


class Masked(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(dim, 3 * dim)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(512, 512)).view(1, 1, 512, 512))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.packed(x).split(c, dim=2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # surely
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.dropout(att)
        y = att @ v
        return y.transpose(1, 2).contiguous().view(b, t, c)


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, q, k, v, mask):
        scores = torch.einsum("bhid,bhjd->bhij", q, k)  # surely
        scores = torch.where(mask, scores, torch.full_like(scores, -1e9))
        weights = self.softmax(scores)
        return torch.einsum("bhij,bhjd->bhid", weights, v)


class Biased(nn.Module):
    def forward(self, q, k, v, bias):
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.size(-1))  # surely
        scores = bias + scores
        weights = F.softmax(scores.float(), dim=-1).type_as(q)
        return torch.matmul(weights, v.transpose(1, 2))


class Batched(nn.Module):
    def forward(self, q, k, v):
        weights = nn.Softmax(dim=-1)(torch.bmm(q, k.permute(0, 2, 1)))  # surely
        weights = F.dropout(weights, 0.1, self.training)
        return torch.bmm(weights, v)


class Shown(nn.Module):
    def forward(self, q, k, v):
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return weights @ v, weights


class Similarity(nn.Module):
    def forward(self, left, right):
        return F.softmax(left @ right.transpose(-2, -1), dim=-1)


class Fused(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused_attn = fused

    def forward(self, q, k, v):
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
            x = attn @ v
        return x


class Pool(nn.Module):
    """One query: the scores are a row."""

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(b, 1, self.heads, c // self.heads).permute(0, 2, 1, 3)
        k = self.k(x).reshape(b, n, self.heads, c // self.heads).permute(0, 2, 1, 3)
        v = self.v(x).reshape(b, n, self.heads, c // self.heads).permute(0, 2, 1, 3)
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return (attn @ v).transpose(1, 2).reshape(b, 1, c)


class Resampler(nn.Module):
    """As many queries as there are latents."""

    def forward(self, x, latents):
        q, k, v = self.q(latents), self.k(x), self.v(x)
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return attn @ v


class OverChannels(nn.Module):
    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 4, 1)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return (attn @ v).permute(0, 3, 1, 2).reshape(b, n, c)


class OverMaps(nn.Module):
    def forward(self, x):
        b, c, h, w = x.size()
        query = x.view(b, c, -1)
        key = x.view(b, c, -1).permute(0, 2, 1)
        weights = torch.softmax(torch.bmm(query, key), dim=-1)
        return torch.bmm(weights, x.view(b, c, -1)).view(b, c, h, w)


class Windows(nn.Module):
    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, self.windows, self.size, 3, self.heads, c // self.heads).permute(3, 0, 1, 4, 2, 5)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return (attn @ v).transpose(2, 3).reshape(b, n, c)
