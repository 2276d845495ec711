// The Fabric of CUDA devices: NCCL moves the data between all ranks, wherever they are.
//
// Life: every process makes its fabric, gives its Invitation() to the controller, Accept()s those
// of all processes, makes groups and channels, and calls Connect(), which makes the communicators
// (setup.h). Connect() is a call of all processes of the mesh, each time; no other call of the
// fabric's groups and channels may run meanwhile. Groups of the same ranks in the same order share
// a communicator, which is the world's for all ranks in order: their calls must come in the same
// order on all members, as they have to anyhow in one queue per rank.
//
// Waits: what the host waits for (making communicators, calls in progress) has a deadline: 300 s
// for the first Connect(), 60 s for later ones, less when connect_timeout_ms is less; calls have
// operation_timeout_ms (600 s where it is 0), and the first of each kind on a communicator, which
// may connect peers in further ways, has as long as the first Connect() if that is longer. What a
// queue waits for has none: who waits for a queue asks Poll(), which finds NCCL's own errors, and
// the control plane aborts when a worker is lost.
//
// Abort: the first cause wins. No call of NCCL starts any more; when nobody is inside one, all
// communicators are aborted at once, each in a thread, in the background, and what ran on the
// devices ends. Peers are not told: that is the control plane's part, and where it is too late NCCL
// tells them of a lost connection. Nor does NCCL say which ranks did not come to a Connect().
//
// Close: without an abort, Close() waits until what was sent is taken, then finalizes together with
// the peers and destroys; what does not end in time is aborted. NCCL may block in both for other
// processes of the host: after 5 s its threads and the memory they use are left behind.
//
// Thread rule: as Fabric. Ownership: owns its groups and channels; devices, queues, library and
// combiner outlive it.
// Sources: NCCL's user guide; shared design of the control plane, "Communicators".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/nccl/combine.h"
#include "collective/nccl/context.h"
#include "collective/nccl/library.h"
#include "device/device.h"

namespace meshwright::collective {

// A rank of this process.
struct LocalRank {
  int rank = 0;
  device::Device* device = nullptr;
  // What groups put their work into; channels put theirs into device->queue().
  device::Queue* collectives = nullptr;
};

// What the fabric is made from. CUDA's versions are compared between workers; 0: not known.
struct NcclParts {
  nccl::Library& library;
  nccl::Combiner& combiner;
  int cuda_driver = 0;   // 1000 * major + 10 * minor
  int cuda_runtime = 0;  // likewise
  nccl::Timing timing = {};
};

// Errors: kInvalidArgument when options and ranks do not fit together; what NCCL says.
Result<std::unique_ptr<Fabric>> MakeNcclFabric(FabricOptions options, std::vector<LocalRank> ranks,
                                               const NcclParts& parts);

}  // namespace meshwright::collective
