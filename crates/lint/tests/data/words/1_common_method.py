# words: add_argument, add_image, add_module, add_scalar, add_scalars, from_pretrained, get_lr, get_parameter, get_submodule, named_parameters, no_weight_decay, register_buffer, register_parameter, requires_grad_, set_description, set_epoch, set_postfix, state_dict, step_update, zero_grad
# other: quux_now
class Tracker:
    def WORD(self, x):
        return x.detach()

def train(model, loader, optimizer, holder):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        kept = holder.WORD(loss)
        print(float(kept))  # <~ TP101
