// What who follows a job sees of it: its events on stderr, the lines of its steps on stdout, and
// below them on a terminal the line of cli/live_line.h.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>

#include "cli/live_line.h"
#include "cli/output.h"

namespace meshwright::cli {

class JobView {
 public:
  struct Options {
    StepPrinter::Options steps;
    bool events = true;
    bool step_lines = true;
    bool live = true;  // where stderr is a terminal
  };
  JobView(const Clock& clock, Options options);
  ~JobView();
  JobView(const JobView&) = delete;
  JobView& operator=(const JobView&) = delete;

  void Show(const client::JobUpdate& update);
  // Takes the live line away, since something else is printed.
  void Clear();
  // What is to be said of all steps behind a job's end.
  std::string Summary() const { return printer_.Summary(); }

 private:
  const Options options_;
  StepPrinter printer_;
  LiveLine live_;
};

// An event's line as one who follows reads it: the time of the day instead of a date, "" where the
// lines of steps say the same.
std::string EventText(const std::string& line);

}  // namespace meshwright::cli
