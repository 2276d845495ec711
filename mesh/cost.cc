#include "mesh/cost.h"

#include "base/check.h"

namespace meshwright::mesh {

double BytesPerDevice(CollectiveKind kind, double local_bytes, int64_t group_size) {
  MW_CHECK(group_size >= 1) << "group_size " << group_size;
  const double others = static_cast<double>(group_size - 1);
  // Multiplying before dividing keeps whole numbers whole.
  const double share = others * local_bytes / static_cast<double>(group_size);
  switch (kind) {
    case CollectiveKind::kAllGather:
      return others * local_bytes;
    case CollectiveKind::kAllReduce:
      return 2 * share;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      break;
  }
  return share;
}

}  // namespace meshwright::mesh
