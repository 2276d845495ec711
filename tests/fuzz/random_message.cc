#include "tests/fuzz/random_message.h"

#include <google/protobuf/descriptor.h>

#include <array>
#include <limits>
#include <string>

namespace meshwright::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kDeepest = 6;
constexpr std::array<const char*, 20> kTexts = {"",
                                                "w0",
                                                "w1",
                                                "step",
                                                "init",
                                                "f32",
                                                "loss",
                                                "tokens",
                                                "cpu",
                                                "cuda",
                                                "data=2",
                                                "../../etc/passwd",
                                                "/data/a",
                                                "a\nb",
                                                "graph \"g\" {\n}",
                                                "0123456789abcdef",
                                                "root",
                                                "*.weight",
                                                "\x1b[2J",
                                                "auto"};

int64_t AnyNumber(Random& random) {
  constexpr std::array<int64_t, 12> kIntegers = {-1,
                                                 0,
                                                 1,
                                                 2,
                                                 7,
                                                 64,
                                                 1 << 20,
                                                 std::numeric_limits<int32_t>::max(),
                                                 std::numeric_limits<int32_t>::min(),
                                                 std::numeric_limits<int64_t>::max(),
                                                 std::numeric_limits<int64_t>::min(),
                                                 int64_t{1} << 40};
  return random.OneOf(2) ? static_cast<int64_t>(random.Below(4))
                         : kIntegers[random.Below(kIntegers.size())];
}

double AnyReal(Random& random) {
  constexpr std::array<double, 6> kReals = {0,
                                            1.5,
                                            -2,
                                            1e308,
                                            std::numeric_limits<double>::infinity(),
                                            std::numeric_limits<double>::quiet_NaN()};
  return kReals[random.Below(kReals.size())];
}

std::string AnyText(Random& random, bool bytes) {
  switch (random.Below(8)) {
    case 0:
      return std::string(64, "0123456789abcdef"[random.Below(16)]);  // a digest
    case 1:
      return std::string(random.Below(300), 'x');
    case 2: {
      std::string text;
      for (size_t i = random.Below(24); i > 0; --i) {
        text += static_cast<char>(bytes ? random.Next() : ' ' + random.Below(90));
      }
      return text;
    }
    default:
      return kTexts[random.Below(kTexts.size())];
  }
}

// One value of a field, set or added by `put`, which knows which of the two.
void FillOne(Message& message, const FieldDescriptor& field, Random& random, int depth) {
  const Reflection& to = *message.GetReflection();
  const bool many = field.is_repeated();
#define MW_PUT(NAME, VALUE)                \
  if (many) {                              \
    to.Add##NAME(&message, &field, VALUE); \
  } else {                                 \
    to.Set##NAME(&message, &field, VALUE); \
  }                                        \
  return
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      MW_PUT(Int32, static_cast<int32_t>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_INT64:
      MW_PUT(Int64, AnyNumber(random));
    case FieldDescriptor::CPPTYPE_UINT32:
      MW_PUT(UInt32, static_cast<uint32_t>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_UINT64:
      MW_PUT(UInt64, static_cast<uint64_t>(AnyNumber(random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      MW_PUT(Double, AnyReal(random));
    case FieldDescriptor::CPPTYPE_FLOAT:
      MW_PUT(Float, static_cast<float>(AnyReal(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      MW_PUT(Bool, random.OneOf(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      MW_PUT(EnumValue, static_cast<int>(random.Below(24)));
    case FieldDescriptor::CPPTYPE_STRING:
      MW_PUT(String, AnyText(random, field.type() == FieldDescriptor::TYPE_BYTES));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      FillMessage(many ? *to.AddMessage(&message, &field) : *to.MutableMessage(&message, &field),
                  random, depth + 1);
  }
#undef MW_PUT
}

}  // namespace

void FillMessage(Message& message, Random& random, int depth) {
  const auto& about = *message.GetDescriptor();
  for (int i = 0; i < about.field_count(); ++i) {
    const FieldDescriptor& field = *about.field(i);
    const bool nested = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (nested && depth >= kDeepest) continue;
    const auto* one_of = field.real_containing_oneof();
    if (one_of != nullptr) continue;  // below: one of them
    size_t count = random.OneOf(4) ? 0 : 1;
    if (field.is_repeated()) count = random.Below(depth > 2 ? 2 : 3);
    for (; count > 0; --count) FillOne(message, field, random, depth);
  }
  for (int i = 0; i < about.real_oneof_decl_count(); ++i) {
    const auto& choices = *about.oneof_decl(i);
    const auto chosen = static_cast<int>(random.Below(static_cast<size_t>(choices.field_count())));
    FillOne(message, *choices.field(chosen), random, depth);
  }
}

}  // namespace meshwright::fuzz
