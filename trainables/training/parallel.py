"""Several workers, one model: replicated (DDP) or sharded (FSDP) parameters, with the same numbers either way.

Both average the workers' gradients: a loss that is a sum over the workers is to be multiplied by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.training.config import Parallelism
from trainables.training.world import World

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def wrap(module: nn.Module, world: World, parallelism: Parallelism) -> nn.Module:
    """The module to call in training, one that synchronises gradients; a single worker's is the module itself.

    FSDP replaces the module's parameters in place (by ``DTensor`` s, sharded by rows): make the optimiser afterwards.
    Tied weights stay tied: what is not in a layer is one group. The layers are the members of ``ModuleList`` s. All
    workers' parameters must be the same.
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
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for layers in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
        for layer in layers:
            fully_shard(layer, mesh=mesh)
    # FSDP takes the first module that runs for the root; an evaluation may call a layer before anyone calls the whole.
    fully_shard(module, mesh=mesh)._get_fsdp_state()._lazy_init()
    return module


@contextmanager
def accumulating(model: nn.Module, more: bool) -> Iterator[None]:
    """Around a micro-batch's forward and backward pass: gradients are kept back while there are ``more`` to come."""
    if isinstance(model, DistributedDataParallel) and more:
        with model.no_sync():
            yield
        return
    if is_sharded_model(model):
        model.set_requires_gradient_sync(not more)
    yield


def clip_gradients(parameters: Iterable[Tensor], maximum_norm: float) -> Tensor:
    """Scale gradients down to a norm over all parameters and workers. Returns the norm before, on the device."""
    parameters = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if is_sharded(norm):
        norm = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, maximum_norm, norm)
    return norm


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Within it, any method of the module finds whole parameters, not only ``forward``. For use without gradients.

    All workers enter it together and compute the same number of forward passes: layers gather their own parameters
    when they are called. Only parameters outside the layers are whole all the time.
    """
    if not is_sharded_model(module):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()


# What shards takes a second to import: whether something is sharded is asked without it.


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this worker has but a part of a tensor."""
    return hasattr(tensor, "device_mesh")


def is_sharded_model(model: nn.Module) -> TypeGuard[FSDPModule]:
    """Whether this worker has but a part of a model's parameters."""
    return hasattr(model, "unshard")


def rows_of(tensor: DTensor) -> tuple[int, int]:
    """The first row that this worker has of a sharded tensor, and the one after its last."""
    assert tensor.placements[0].is_shard(0), "FSDP shards by rows over one dimension of workers"
    rank, num_rows = tensor.device_mesh.get_local_rank(), len(tensor)
    share = -(-num_rows // tensor.device_mesh.size())  # of every worker; the last ones have less
    return min(rank * share, num_rows), min((rank + 1) * share, num_rows)


def shard_of(rows: Tensor, like: DTensor) -> DTensor:
    """A sharded tensor of which this worker has ``rows``, with the whole's shape and the sharding of ``like``."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        rows.to(like.device), like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
