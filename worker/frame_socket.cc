#include "worker/frame_socket.h"

#include <utility>

namespace meshwright::worker {
namespace {

constexpr size_t kMaxFrameBytes = 8 << 20;

}  // namespace

FrameSocket::FrameSocket(UniqueFd fd, FrameHandlers handlers)
    : handlers_(std::move(handlers)),
      socket_(std::move(fd), kMaxFrameBytes,
              {[this](std::string_view bytes) -> Status {
                 MW_ASSIGN_OR_RETURN(actor::Frame frame, actor::DecodeFrame(bytes));
                 handlers_.frame(std::move(frame));
                 return OkStatus();
               },
               [this](const Status& why) { handlers_.ended(why); }}) {}

}  // namespace meshwright::worker
