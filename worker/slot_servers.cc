#include "worker/slot_servers.h"

#include <sys/socket.h>

#include <utility>

#include "base/check.h"

namespace meshwright::worker {

void SlotServers::Serve(std::shared_ptr<void> what, collective::Connection connection,
                        FindSlot find) {
  MW_CHECK(what != nullptr && connection.valid()) << "a reader of nothing";
  const MutexLock lock(mutex_);
  ForgetEnded();
  if (closed_ || readers_.size() >= kMost) return;
  readers_.push_back(std::make_unique<Reader>());
  Reader& reader = *readers_.back();
  reader.connection = std::move(connection);
  reader.what = what.get();
  reader.thread = std::thread([what = std::move(what), find = std::move(find), &reader] {
    ServeSlots(reader.connection, find);
    (void)::shutdown(reader.connection.fd(), SHUT_RDWR);
    reader.ended = true;
  });
}

void SlotServers::ForgetEnded() {
  for (auto it = readers_.begin(); it != readers_.end();) {
    if (!(*it)->ended) {
      ++it;
      continue;
    }
    (*it)->thread.join();
    it = readers_.erase(it);
  }
}

void SlotServers::End(const std::set<const void*>& gone) {
  const MutexLock lock(mutex_);
  for (const auto& reader : readers_) {
    if (gone.contains(reader->what)) (void)::shutdown(reader->connection.fd(), SHUT_RDWR);
  }
}

void SlotServers::Close() {
  std::list<std::unique_ptr<Reader>> readers;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    readers.swap(readers_);
  }
  for (const auto& reader : readers) {
    (void)::shutdown(reader->connection.fd(), SHUT_RDWR);
    reader->thread.join();
  }
}

}  // namespace meshwright::worker
