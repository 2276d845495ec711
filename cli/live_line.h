// The line at the bottom of a terminal that says how a job goes on, drawn over itself:
//
//   [#########-----------] 45%  270/600  loss 2.3120  41.5k tokens/s  8.4 s left
//   QUEUED  waits behind job 14 (2 ahead)
//
// What else is printed meanwhile takes its place, and it is drawn anew below. Thread rule: values;
// one thread. Nothing is written here: callers write what they are given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/client.h"

namespace meshwright::cli {

class LiveLine {
 public:
  // columns: of the terminal; 0: there is none, and every text is "".
  LiveLine(const Clock& clock, int columns) : clock_(clock), columns_(columns) {}

  // Takes in what is new, and gives the line as it is then, or "" while it is not due again.
  std::string Draw(const client::JobUpdate& update);
  // What makes room for other text; "" where nothing is drawn.
  std::string Clear();

 private:
  std::string Text(const client::JobInfo& job) const;

  const Clock& clock_;
  const int columns_;
  double step_s_ = 0;  // of late; 0: not known
  double tokens_ = 0;  // of a step
  double loss_ = 0;
  bool drawn_ = false;
  int64_t drawn_ms_ = -1;  // below 0: never
};

// Columns of the terminal behind a descriptor; 0: it is none, or a dumb one ($TERM).
int TerminalColumns(int fd);

}  // namespace meshwright::cli
