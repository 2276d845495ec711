// What two runs of a job came to, held against one another: numbers and tensors, with the first
// place where they differ.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rehearsal/virtual_cluster.h"

namespace meshwright::rehearsal {

// An element of a tensor that is not what one device has there.
struct Difference {
  std::string tensor;
  int rank = 0;
  ir::Box box;     // what the rank holds
  ir::Dims index;  // of the element, in the whole tensor
  double expected = 0;
  double actual = 0;
  double share = 0;  // of the largest entry of the tensor
};

// One thing that was compared: a number, or tensors of one kind.
struct Check {
  std::string name;                // "loss of step 1", "gradients"
  std::optional<double> expected;  // of a number
  std::optional<double> actual;
  int64_t tensors = 0;
  int64_t differing = 0;  // tensors
  double largest = 0;     // difference: of a number its share, of tensors of their largest entries
  std::vector<Difference> first;  // of each tensor that differs, a few
  bool equal = true;
};

Check CompareNumbers(const std::string& name, double expected, double actual, double tolerance);

// Every block that a rank holds of the tensors of `names`, in this order, ranks in theirs. A tensor
// that only one of the runs has differs. `prefix`: of their names in the state.
Check CompareTensors(const std::string& name, const std::vector<std::string>& names,
                     const std::string& prefix,
                     const std::map<std::string, LogicalTensor>& expected,
                     const std::vector<StateBlock>& actual, double tolerance);

}  // namespace meshwright::rehearsal
