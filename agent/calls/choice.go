package calls

// Auto lets the agent choose engines.
const Auto = "auto"
