"""What no hook can avoid: the bytes of a recipe, in its messages, and nothing else. For bench/overlap.py.

A hook of the recipe takes some steps first, which tell how long the message of each group of tensors is. Then, when all gradients of a group
are there, as many bytes are handed to gloo, to the other rank and from it, and the last bucket waits for all of them. Nothing is encoded,
decoded, checked or averaged, ranks do not vote, and no thread but gloo's own takes part.
"""

_TAG = 0x464C0000
_STEPS = 2  # of the hook


class Floor:
    """For two ranks, and recipes whose messages all have one length in all steps, in one round."""

    def __init__(self, torch, ddp, recipe, take_step):
        """`take_step(ddp)` takes a step with a model like that of `ddp`."""
        self._dist, self._to = torch.distributed, 1 - torch.distributed.get_rank()
        lens, names = self._learn(torch, ddp, recipe, take_step)
        self._messages = [[torch.empty(n, dtype=torch.uint8) for n in lens] for _ in range(2)]
        self._sizes = [list(names.values()).count(group) for group in range(len(lens))]
        self._missing, self._works = list(self._sizes), []
        self._watched = [parameter.register_post_accumulate_grad_hook(lambda _, group=names[name]: self._note(group))
                         for name, parameter in ddp.module.named_parameters()]

    @staticmethod
    def _learn(torch, ddp, recipe, take_step):
        """The length of each group's message, and {name: group}."""
        import copy
        from tersegrad.torch import State, hook
        twin = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(ddp.module), gradient_as_bucket_view=True)
        state = State(recipe, model=twin.module)
        twin.register_comm_hook(state, hook)
        for _ in range(_STEPS):
            take_step(twin)
        stats, exchange = state.stats(), state._exchange
        names = {tensor.name: exchange.group_of(t) for t, tensor in enumerate(exchange.tensors)}
        lens = [0] * exchange.group_n
        for name, group in names.items():
            lens[group] += stats["tensors"][name]["bytes"]
        rest = stats["last"]["sent"] - sum(lens)  # headers
        return [n + rest // len(lens) for n in lens], names

    def _note(self, group):
        self._missing[group] -= 1
        if self._missing[group] == 0:
            sent, received = (messages[group] for messages in self._messages)
            self._works += [self._dist.irecv(received, self._to, tag=_TAG + group), self._dist.isend(sent, self._to, tag=_TAG + group)]

    def finish(self):
        """With the last bucket, whose gradients are there."""
        works, self._works, self._missing = self._works, [], list(self._sizes)
        for work in works:
            work.wait()


def floor_hook(floor, bucket):
    import torch
    if bucket.is_last():
        floor.finish()
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
