#include "controller/grpc/job_file_service.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "proto/convert_job_file.h"

namespace meshwright::controller {

JobFileServiceImpl::JobFileServiceImpl(CallParts parts, proto::ResolveFile resolve)
    : LateService(std::move(parts)), resolve_(std::move(resolve)) {
  AddUnaryOf<v1::ResolveRequest, v1::ResolveReply>(
      "/meshwright.v1.JobFileService/Resolve", "job_file", "resolve",
      [this](const Caller& caller, const v1::ResolveRequest& request, v1::ResolveReply& reply,
             auto answer) {
        if (!resolve_) {
          return answer(
              Unimplemented("this controller was started by a program that reads no job files; "
                            "start one with `meshwright controller`"));
        }
        auto file = proto::Decode(request);
        if (!file.has_value()) return answer(file.error());
        file->owner = caller.name;
        if (waiting_.fetch_add(1) >= kMostWaiting) {
          waiting_.fetch_sub(1);
          return answer(ResourceExhausted(
              fmt::format("{} job files are waiting already; try again later", kMostWaiting)));
        }
        const bool posted = thread_.Post([this, file = *std::move(file), &reply, answer] {
          const Result<proto::ResolvedFile> resolved = Resolve(file);
          if (resolved.has_value()) reply = proto::Encode(*resolved);
          waiting_.fetch_sub(1);
          answer(internal::ToStatus(resolved));
        });
        if (!posted) answer(Unavailable("the controller is stopping"));
      });
}

Result<proto::ResolvedFile> JobFileServiceImpl::Resolve(proto::JobFile file) const {
  for (proto::ClientFile& each : file.files) {
    if (each.sha256.empty()) continue;
    const std::optional<int64_t> size = parts_.blobs->Find(each.sha256);
    if (!size || *size != each.size_bytes) {
      return Fail(FailedPrecondition(
          fmt::format("'{}' (sha256 {}) is not on the controller with {} bytes; upload it first",
                      each.path, each.sha256, each.size_bytes)));
    }
    MW_ASSIGN_OR_RETURN(each.local, parts_.blobs->PathOf(each.sha256));
  }
  const proto::StoreFile store = [blobs = parts_.blobs](const std::string& path) {
    return blobs->AddFile(path, path);
  };
  return resolve_(file, store);
}

}  // namespace meshwright::controller
