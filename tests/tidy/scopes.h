// Scopes: where the functions and classes of a file begin and end.
//
// No parser of C++: brackets are matched in the blanked code, and what stands before an opening
// brace says what it opens. That is enough for code in this house's format; macros that hide a
// brace are not seen. Of the branches of an #if the last one closes what was open before it.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace meshwright::tidy {

struct FunctionScope {
  std::string name;      // as written: "Step", "Core::Step"
  std::string owner;     // the class: of its body or of the name as written; "" of a free function
  int first = 0;         // 1-based line of the opening brace
  int last = 0;          // line of the closing one
  bool outside = false;  // written outside of the body of its owner
};

struct ClassScope {
  std::string name;  // with the classes around it: "Core::Entry"
  int first = 0;
  int last = 0;
  // Of the body: functions declared or defined, private ones too. Constructors, destructors, and
  // what is defaulted, deleted or a friend do not count.
  int methods = 0;
};

struct Scopes {
  std::vector<FunctionScope> functions;
  std::vector<ClassScope> classes;
};

// Functions inside functions (lambdas, local classes) are part of the outer one.
Scopes FindScopes(const SourceFile& file);

}  // namespace meshwright::tidy
