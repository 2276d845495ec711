// What becomes of a job that loses a worker, an executor or a device.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace meshwright::ir {

// How a job goes on when its devices do not come back.
enum class Elastic : uint8_t {
  kOff,     // it waits for as many as it had
  kShrink,  // with fewer replicas, and everything else as it was
  kReplan,  // it is planned anew for what is there
};
inline constexpr Elastic kElastics[] = {Elastic::kOff, Elastic::kShrink, Elastic::kReplan};
const char* ElasticName(Elastic elastic);  // "off", "shrink", "replan"
Result<Elastic> ParseElastic(std::string_view name);

struct FaultToleranceSpec {
  bool enable = true;
  int64_t max_recoveries = 10;  // a day; then the cause of the next failure ends the job
  Elastic elastic = Elastic::kReplan;
  int64_t min_devices = 1;  // with fewer it waits
  // -1: no time where a program made ahead fits what is left, else kUsualWaitForSpareS.
  int64_t max_wait_for_spare_s = -1;
  // How long nothing may move, nor anything be at work, before the run is ended; 0: for ever.
  int64_t stall_s = 60;
  // Steps between snapshots in the memory of workers; 0: none, -1: as many as keep their cost low.
  int64_t snapshot_every = -1;
  int64_t copies = 1;  // of a box of the state, on other workers than the one that has it first
  int64_t orphan_grace_s = 600;  // workers hold its run so long without a controller; 0: not
  friend bool operator==(const FaultToleranceSpec&, const FaultToleranceSpec&) = default;
};
inline constexpr int64_t kUsualWaitForSpareS = 60;

// Errors: kInvalidArgument naming the field.
Status CheckFaultTolerance(const FaultToleranceSpec& spec);

}  // namespace meshwright::ir
