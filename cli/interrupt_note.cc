#include "cli/interrupt_note.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace meshwright::cli {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

// Read inside the handler, so plain memory that does not change while it is installed.
std::array<char, 1024> note;
size_t note_bytes = 0;
bool installed = false;
std::array<struct sigaction, 2> previous_actions;

void OnSignal(int number) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, note.data(), note_bytes);
  _exit(128 + number);
}

}  // namespace

InterruptNote::InterruptNote(const std::string& text) {
  MW_CHECK(!installed) << "a second InterruptNote while one is alive";
  installed = true;
  note_bytes = std::min(text.size(), note.size());
  std::memcpy(note.data(), text.data(), note_bytes);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &previous_actions[i]);
    // A shell script's background job must not die of the Ctrl-C that is meant for others.
    if (previous_actions[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptNote::~InterruptNote() {
  for (size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &previous_actions[i], nullptr);
  installed = false;
}

}  // namespace meshwright::cli
