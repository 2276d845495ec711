#include "cli/interrupt_flag.h"

#include <unistd.h>
#include <csignal>

#include <atomic>

#include "base/check.h"

namespace meshwright::cli {
namespace {

constexpr int kInterrupted = 130;

std::atomic<bool> in_use{false};
volatile std::sig_atomic_t pressed_flag = 0;
struct sigaction action_before = {};

void OnInterrupt(int) {
  if (pressed_flag != 0) ::_exit(kInterrupted);
  pressed_flag = 1;
}

}  // namespace

InterruptFlag::InterruptFlag() {
  MW_CHECK(!in_use.exchange(true));
  pressed_flag = 0;
  ::sigaction(SIGINT, nullptr, &action_before);
  if (action_before.sa_handler == SIG_IGN) return;
  struct sigaction ours = {};
  ours.sa_handler = OnInterrupt;  // without SA_RESTART: a read ends
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGINT, &ours, nullptr);
}

InterruptFlag::~InterruptFlag() {
  ::sigaction(SIGINT, &action_before, nullptr);
  in_use = false;
}

bool InterruptFlag::pressed() const { return pressed_flag != 0; }

bool InterruptFlag::Take() {
  const bool was = pressed_flag != 0;
  pressed_flag = 0;
  return was;
}

}  // namespace meshwright::cli
