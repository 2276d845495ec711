// The helper that the fault tests trust finds each kind of thing that can be left.
#include "tests/e2e/leftovers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace meshwright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Leftovers, NothingIsNothing) { EXPECT_EQ(Leftovers().Find(0), ""); }

TEST(Leftovers, FindsAChildAndAnOrphan) {
  Leftovers leftovers;
  SubprocessOptions options;
  // The shell ends at once; its background process is then an orphan, which comes to us.
  options.args = {"/bin/sh", "-c", "sleep 60 & echo started"};
  options.stdout_to = OutputTo::Discard();
  auto shell = Subprocess::Start(options);
  ASSERT_TRUE(shell.has_value()) << shell.error();
  ASSERT_TRUE((*shell)->Wait(kSoonMs).has_value());
  // Its name is the shell's until it has become `sleep`.
  EXPECT_TRUE(
      WaitUntil([&] { return leftovers.Find(0).find("(sleep)") != std::string::npos; }, kSoonMs));
  for (const ProcessEntry& process : Descendants()) ::kill(process.pid, SIGKILL);
  EXPECT_EQ(leftovers.Find(kSoonMs), "");
}

TEST(Leftovers, EndsWhatIsLeftWhenItGoes) {
  SubprocessOptions options;
  options.args = {"/bin/sh", "-c", "sleep 60 & echo started"};
  options.stdout_to = OutputTo::Discard();
  {
    Leftovers leftovers;
    auto shell = Subprocess::Start(options);
    ASSERT_TRUE(shell.has_value()) << shell.error();
    ASSERT_TRUE((*shell)->Wait(kSoonMs).has_value());
    EXPECT_THAT(Descendants(), SizeIs(1));
  }
  EXPECT_THAT(Descendants(), SizeIs(0));
}

// A child holds a listening socket and shared memory; it dies, but somebody else has them too.
TEST(Leftovers, FindsSocketsAndSharedMemoryThatSomebodyKeeps) {
  Leftovers leftovers;
  UniqueFd memory(::memfd_create("meshwright-test", MFD_CLOEXEC));
  ASSERT_TRUE(memory.valid());
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), generic, length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), generic, &length), 0);
  const std::string name = fmt::format("tcp 127.0.0.1:{}", ntohs(address.sin_port));
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it has what we listen on: it must not outlive us
    for (;;) ::pause();
  }
  ASSERT_GT(child, 0);
  const Holdings held = HoldingsOf(child);
  EXPECT_EQ(held.listening.count(name), 1u) << ::testing::PrintToString(held.listening);
  EXPECT_THAT(held.shared_memory, SizeIs(1));
  leftovers.Note();
  EXPECT_GE(leftovers.noted(), 2u);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_TRUE(WaitUntil(
      [&] {
        return leftovers.Find(0).find("process " + std::to_string(child)) == std::string::npos;
      },
      kSoonMs));
  EXPECT_THAT(leftovers.Find(0), AllOf(HasSubstr(name), HasSubstr("shared memory")));
  // A mapping alone keeps the memory as well.
  ASSERT_EQ(::ftruncate(memory.get(), 4096), 0);
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, memory.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  listener.Reset();
  memory.Reset();
  EXPECT_THAT(leftovers.Find(0), HasSubstr("shared memory"));
  ASSERT_EQ(::munmap(mapped, 4096), 0);
  EXPECT_EQ(leftovers.Find(kSoonMs), "");
}

TEST(Leftovers, FindsNamedSharedMemory) {
  Leftovers leftovers;
  const std::string name = fmt::format("/meshwright-test-{}", ::getpid());
  const UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  ASSERT_TRUE(fd.valid());
  EXPECT_THAT(leftovers.Find(0), HasSubstr("/dev/shm" + name));
  ASSERT_EQ(::shm_unlink(name.c_str()), 0);
  EXPECT_EQ(leftovers.Find(0), "");
  // Tests and other programs run side by side: names without a pid of ours are not ours.
  const std::string stranger = fmt::format("/meshwright-test-{}0", ::getpid());
  const UniqueFd other(::shm_open(stranger.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  ASSERT_TRUE(other.valid());
  EXPECT_EQ(leftovers.Find(0), "");
  ASSERT_EQ(::shm_unlink(stranger.c_str()), 0);
}

}  // namespace
}  // namespace meshwright::testing
