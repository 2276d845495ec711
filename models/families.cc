// The table of families: a new one is a file in models/families/ and a row here.
#include "models/families/families.h"
#include "models/families/llama_line.h"

namespace meshwright::models {

const std::vector<Family>& Families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> rows = {Gpt2Family()};
    for (FamilyRow<LlamaConfig>& row : LlamaLine()) rows.push_back(MakeFamily(std::move(row)));
    for (Family& row : MixtureFamilies()) rows.push_back(std::move(row));
    for (Family& row : DecoderFamilies()) rows.push_back(std::move(row));
    rows.push_back(BertFamily());
    rows.push_back(T5Family());
    rows.push_back(BartFamily());
    rows.push_back(VitFamily());
    return rows;
  }();
  return families;
}

}  // namespace meshwright::models
