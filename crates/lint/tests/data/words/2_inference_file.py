# words: api, app, chat, demo, demos, deploy, deployment, eval, evals, evaluate, evaluation, export, generate, generation, gradio, infer, inference, onnx, pipeline, pipelines, predict, prediction, sample, sampling, serve, server, serving, validate, visualize, webui
# file: tools/WORD_model.py
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        self.peak = x.max().item()  # <- TP101? # <~ TP101
        return x
