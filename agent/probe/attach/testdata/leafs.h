long leaf1(long), leaf2(long), leaf3(long), leaf4(long), leaf5(long), leaf6(long), calls(long);
void nothing(void);
