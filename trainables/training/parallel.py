"""Several workers, one model: replicated (DDP) or sharded (FSDP) parameters, with the same numbers either way.

Both average the workers' gradients. A loss that is a sum over the workers is multiplied by their number before
``backward()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from trainables.training.config import Parallelism
from trainables.training.world import World


def wrap(module: nn.Module, world: World, parallelism: Parallelism) -> nn.Module:
    """The module to call in training, one that synchronises gradients; a single worker's is the module itself.

    FSDP replaces the module's parameters in place (by ``DTensor`` s, sharded by rows): make the optimiser afterwards.
    Tied weights stay tied: what is not in a layer is one group.

    Args:
        module: on its device, with the same parameters on all workers. Its transformer layers are the members of its
            ``ModuleList`` s.
        world: this worker among those that train together; they have a process group.
        parallelism: how they share the model.
    """
    if world.size == 1:
        return module
    if parallelism == "ddp":
        return DistributedDataParallel(
            module,
            device_ids=[world.device.index] if world.device.type == "cuda" else None,
            broadcast_buffers=False,  # positions and the like: the same on all workers
            gradient_as_bucket_view=True,
        )
    mesh = init_device_mesh(world.device.type, (world.size,))
    for layers in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
        for layer in layers:
            fully_shard(layer, mesh=mesh)
    # FSDP takes the first module that runs for the root; an evaluation may call a layer before anyone calls the whole.
    fully_shard(module, mesh=mesh)._get_fsdp_state()._lazy_init()
    return module


@contextmanager
def accumulating(model: nn.Module, more: bool) -> Iterator[None]:
    """Around a micro-batch's forward and backward pass: its gradients are kept back while there are ``more`` to come.

    Args:
        model: as :func:`wrap` gave it.
        more: whether another micro-batch follows before the update.
    """
    if isinstance(model, DistributedDataParallel) and more:
        with model.no_sync():
            yield
        return
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(not more)
    yield


def clip_gradients(parameters: Iterable[Tensor], maximum_norm: float) -> Tensor:
    """Scale the gradients down to a norm over all parameters and workers; nothing waits for the device.

    Returns:
        The norm before, a scalar on the device, not finite where any gradient is not.
    """
    parameters = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, maximum_norm, norm)
    return norm


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Within it, any method of the module finds whole parameters, not only ``forward``. For use without gradients.

    All workers enter it together and compute the same number of forward passes: layers gather their own parameters
    when they are called. Only parameters outside the layers are whole all the time.

    Args:
        module: what :func:`wrap` was given.
    """
    if not isinstance(module, FSDPModule):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()


def full(tensor: Tensor) -> Tensor:
    """The whole of a tensor; of a sharded one all workers must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def row_range(num_rows: int, rank: int, size: int) -> tuple[int, int]:
    """The first row that FSDP gives to a worker, and the one after its last: ceil(rows / size), the last ones less."""
    share = -(-num_rows // size)
    return min(rank * share, num_rows), min((rank + 1) * share, num_rows)


def shard_of(rows: Tensor, like: DTensor) -> DTensor:
    """A sharded tensor of which this worker has ``rows``, with the whole's shape and the sharding of ``like``."""
    return DTensor.from_local(
        rows.to(like.device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
