# words: Linear, AutoModel, GRU, LSTM, MultiheadAttention, Transformer, TransformerEncoder, TransformerEncoderLayer, bmm, create_model, einsum, from_pretrained, matmul, scaled_dot_product_attention, transformers
import torch
import blocks


def train(loader, optimizer):
    model = blocks.WORD(512)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x).mean()
        loss.backward()  # <- TP401?
        optimizer.step()
        optimizer.zero_grad()
