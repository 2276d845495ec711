#include "worker/blobs.h"

#include "base/file.h"

namespace meshwright::worker {

Result<std::string> Blobs::Read(const ir::BlobRef& blob, const std::function<bool()>& cancelled) {
  MW_ASSIGN_OR_RETURN(std::string path, Path(blob, cancelled));
  return ReadFile(path);
}

}  // namespace meshwright::worker
