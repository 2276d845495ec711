// Library: what the fabric needs of NCCL.
//
// OpenLibrary() loads the shared library when it is needed, so that one build runs on machines with
// and without it; tests implement a NCCL of their own. Every call is a call of NCCL and returns its
// code; what the calls mean together is up to the fabric. Communicators never block: a call may
// return kInProgress, and then nothing else may be done with its communicator until
// CommGetAsyncError says something else.
//
// The log: NCCL explains most errors only in its log. OpenLibrary() has it written to a file of
// this process (NCCL_DEBUG_FILE; NCCL_DEBUG=WARN). Sums by NVLink's switches are off
// (NCCL_NVLS_ENABLE=0): they come in another order in every run, ours have the same bits in every
// run of a layout. The user's environment goes first in all of these.
//
// Thread rule: as NCCL: calls on one communicator one at a time; GroupStart() to GroupEnd() belong
// to the calling thread. Ownership: outlives every communicator.
// Source: NCCL's user guide, "Fault tolerance" and "Communicator creation".
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "collective/nccl/abi.h"

namespace meshwright::collective::nccl {

// From this many ranks on, several ids spread the start over several listeners.
inline constexpr int kRanksForOneId = 128;
inline constexpr int kRanksPerId = 64;

struct CommOptions {
  bool split_share = false;  // what is split from it uses its connections and buffers
  int max_ctas = 0;          // thread blocks of a kernel, equal on all members; 0: as NCCL chooses
};
// Without blocking.
Config ConfigOf(const CommOptions& options);

// One call of AllReduce to Recv.
struct Transfer {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements, as NCCL counts them for the call
  DataType type = DataType::kUint8;
  CommHandle comm = nullptr;
  StreamHandle stream = nullptr;
};

class Library {
 public:
  virtual ~Library() = default;

  virtual Code GetVersion(int* version) = 0;
  virtual Code GetUniqueId(UniqueId* id) = 0;
  // The device in use by the calling thread becomes the communicator's. *comm may be used at once,
  // but for CommSplit, which sets it when the parent leaves kInProgress: it must stay in place.
  virtual Code CommInitRankConfig(CommHandle* comm, int ranks, const UniqueId& id, int rank,
                                  const CommOptions& options) = 0;
  virtual Code CommInitRankScalable(CommHandle* comm, int ranks, std::span<const UniqueId> ids,
                                    int rank, const CommOptions& options) = 0;
  virtual Code CommSplit(CommHandle parent, int color, int key, CommHandle* comm,
                         const CommOptions& options) = 0;
  virtual Code CommFinalize(CommHandle comm) = 0;
  virtual Code CommDestroy(CommHandle comm) = 0;
  // Ends what runs, and destroys.
  virtual Code CommAbort(CommHandle comm) = 0;
  virtual Code CommGetAsyncError(CommHandle comm, Code* state) = 0;
  virtual std::string GetErrorString(Code code) = 0;
  virtual std::string GetLastError(CommHandle comm) = 0;  // of the process; comm may be null
  virtual Code GroupStart() = 0;
  virtual Code GroupEnd() = 0;

  virtual Code AllReduce(const Transfer& transfer, RedOp op) = 0;
  virtual Code AllGather(const Transfer& transfer) = 0;
  virtual Code ReduceScatter(const Transfer& transfer, RedOp op) = 0;
  // count: of one block; `ranks` blocks.
  virtual Code AllToAll(const Transfer& transfer, int ranks) = 0;
  // Sends to one peer what is in `input` and receives as much from another, at the same time.
  virtual Code Exchange(const Transfer& transfer, int to, int from) = 0;
  virtual Code Broadcast(const Transfer& transfer, int root) = 0;
  virtual Code Send(const Transfer& transfer, int peer) = 0;
  virtual Code Recv(const Transfer& transfer, int peer) = 0;

  // Where the log is, for messages; empty: not in a file.
  virtual std::string log_path() const { return ""; }
};

// "ncclSystemError".
const char* CodeName(Code code);
int64_t DataTypeBytes(DataType type);
std::string VersionText(int version);  // 22809: "2.28.9"

// What failed, with NCCL's explanations: "WHAT: ncclSystemError (unhandled system error ...); NCCL
// says: ...; its log /tmp/x ends with: ...". kUnavailable for errors of the system, of peers and of
// the device, else kInternal.
Status ErrorOf(Library& library, Code code, const std::string& what);

// Unless the user's environment says otherwise. Before other threads read it.
void DisableSwitchSums();

// path: empty for libnccl.so.2 from where the system looks. Errors: kFailedPrecondition when there
// is none, or one that is too old or lacks a function.
Result<std::unique_ptr<Library>> OpenLibrary(const std::string& path = "");

}  // namespace meshwright::collective::nccl
