#include "worker/message_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace meshwright::worker {
namespace {

constexpr size_t kMost = 8 << 20;
constexpr int64_t kLongMs = 20'000;

// One end, and what came to it.
class End {
 public:
  End(UniqueFd fd, size_t most)
      : socket(std::move(fd), most,
               {[this](std::string_view bytes) {
                  const std::scoped_lock lock(mutex_);
                  heard_.emplace_back(bytes);
                  changed_.notify_all();
                  return OkStatus();
                },
                [this](const Status& why) {
                  const std::scoped_lock lock(mutex_);
                  end_ = why;
                  changed_.notify_all();
                }}) {}
  std::string Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !heard_.empty(); });
    std::string message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !end_.ok(); });
    return end_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> heard_;
  Status end_;

 public:
  MessageSocket socket;
};

std::array<UniqueFd, 2> Pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

TEST(MessageSocket, MessagesOfAnySizeArriveInOrder) {
  auto [a, b] = Pair();
  ASSERT_TRUE(SendMessage(a.get(), "before anybody listens").ok());
  End left(std::move(a), kMost);
  End right(std::move(b), kMost);
  const std::string large(5 << 20, 'l');  // more than the socket holds
  EXPECT_TRUE(left.socket.Send(large));
  EXPECT_TRUE(left.socket.Send(""));
  EXPECT_TRUE(left.socket.Send("last"));
  EXPECT_TRUE(right.socket.Send("back"));
  EXPECT_EQ(right.Next(), "before anybody listens");
  EXPECT_EQ(right.Next(), large);
  EXPECT_EQ(right.Next(), "");
  EXPECT_EQ(right.Next(), "last");
  EXPECT_EQ(left.Next(), "back");
  EXPECT_TRUE(left.socket.Flush(kLongMs));
}

TEST(MessageSocket, FlushWaitsForAPeerThatDoesNotReadNoLongerThanItIsTold) {
  auto [a, b] = Pair();
  End left(std::move(a), kMost);
  EXPECT_TRUE(left.socket.Send(std::string(5 << 20, 'l')));
  EXPECT_FALSE(left.socket.Flush(10));
  b.Reset();
  EXPECT_EQ(left.AwaitEnd().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(left.socket.Send("late"));
}

TEST(MessageSocket, ALongerMessageThanAllowedEndsTheConnection) {
  auto [a, b] = Pair();
  End left(std::move(a), kMost);
  End right(std::move(b), 100);
  EXPECT_TRUE(left.socket.Send(std::string(101, 'x')));
  EXPECT_EQ(right.AwaitEnd().code(), StatusCode::kInvalidArgument);
  (void)left.AwaitEnd();
}

}  // namespace
}  // namespace meshwright::worker
