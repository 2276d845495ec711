#include "ir/fault_tolerance.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::ir {

const char* ElasticName(Elastic elastic) {
  switch (elastic) {
    case Elastic::kOff:
      return "off";
    case Elastic::kShrink:
      return "shrink";
    case Elastic::kReplan:
      return "replan";
  }
  MW_CHECK(false) << "elastic " << static_cast<int>(elastic);
  return "";
}

Result<Elastic> ParseElastic(std::string_view name) {
  for (const Elastic elastic : kElastics) {
    if (name == ElasticName(elastic)) return elastic;
  }
  return Fail(InvalidArgument(fmt::format("elastic '{}' is none of off, shrink, replan", name)));
}

Status CheckFaultTolerance(const FaultToleranceSpec& spec) {
  const auto check = [](const char* field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return OkStatus();
    return InvalidField(fmt::format("fault_tolerance.{}", field),
                        fmt::format("is {}; it must be {} to {}", value, least, most));
  };
  MW_TRY(check("max_recoveries", spec.max_recoveries, 0, 1'000'000));
  MW_TRY(check("min_devices", spec.min_devices, 1, 1'000'000));
  MW_TRY(check("stall_s", spec.stall_s, 0, 1'000'000'000));
  MW_TRY(check("max_wait_for_spare_s", spec.max_wait_for_spare_s, -1, 1'000'000'000));
  MW_TRY(check("snapshot_every", spec.snapshot_every, -1, 1'000'000'000));
  MW_TRY(check("copies", spec.copies, 0, 16));
  return check("orphan_grace_s", spec.orphan_grace_s, 0, 1'000'000);
}

}  // namespace meshwright::ir
