"""Where the steps of an exchange happen: a process group, and the CPU or a GPU."""

from typing import Any, List, Optional

import torch
import torch.distributed

from ._exchange import AnyLink
from ._library import Error
from ._torch_device import Device, is_on_gpu
from ._torch_group import control_group, member_of
from ._torch_link import TorchLink
from ._torch_wire import link_of


class Place:
    """The base of Steps."""

    _control: Any = None   # the process group for votes and lengths; None: that of control_group
    _owner: object = None  # who uses the process group, where several take turns; None: this one

    def __init__(self, process_group: Any) -> None:
        self._group = process_group
        self._joined: Optional[TorchLink] = None
        self._device: Optional[Device] = None    # of gradients on a GPU
        self._of: Optional[torch.device] = None  # where gradients are, from the first step on
        self._carrier: Optional[AnyLink] = None  # of the exchange's operations
        self._norms: List[Any] = []              # process groups of SyncBatchNorm in the model; None: that of all ranks

    # ---- the process group -----------------------------------------------------------------------------------------------

    def _join(self) -> TorchLink:
        """The link for host memory. Without a process group when this was made, it is found at the first step."""
        if self._joined is None:
            self._group = member_of(self._group)
            self._joined = TorchLink(self._control or control_group(self._group))
        return self._joined

    @property
    def _link(self) -> TorchLink:
        return self._joined or self._join()

    @property
    def rank(self) -> int:
        return self._link.rank

    @property
    def world(self) -> int:
        return self._link.world

    # ---- gradients on a GPU ------------------------------------------------------------------------------------------------

    def _check_kinds(self, kinds: List[str]) -> None:
        for rank, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise Error(f"rank {rank} has its gradients on '{kind}' and rank 0 on '{kinds[0]}'; all ranks need the same kind of device", "MISMATCH")

    def _find_device(self, of: torch.device) -> None:
        """Makes the device of gradients on a GPU."""
        if is_on_gpu(of) and self._device is None:
            if any((group or torch.distributed.group.WORLD) is self._group for group in self._norms) and of.type == "cuda" and self.world > 1:
                raise Error("the model has SyncBatchNorm, which uses the same process group in the backward pass; give the State one of its "
                            "own: process_group=torch.distributed.new_group()")
            self._device = Device(of)

    def _connect(self) -> None:
        """All ranks come here, after they know that none has a trouble."""
        try:
            if self._device is not None and self._carrier is None:
                self._carrier = link_of(self._group, self._device, self._link, self._owner or self)
        except Exception as error:
            self._link.agree(str(error) or type(error).__name__)
            raise
        if self._device is not None:
            self._link.agree(None)

    def _carrying(self) -> AnyLink:
        """The link of the exchange's operations."""
        return self._carrier or self._link

    def _meet(self) -> None:
        """Before gradients are reported: what computes them may still be under way on the current stream."""
        if self._device is not None:
            self._device.meet()
