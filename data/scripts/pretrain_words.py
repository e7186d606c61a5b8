"""Word and fact lists of the pretraining text; the wide word lists give the tokenizer its common words and characters."""

from __future__ import annotations

EN_FACTS: tuple[str, ...] = (
    "Water freezes at zero degrees.",
    "Ice is lighter than water.",
    "The moon goes around the earth.",
    "Bees collect nectar from flowers.",
    "A spider has eight legs.",
    "Iron rusts when it is wet.",
    "Salt dissolves in water.",
    "The sun rises in the east.",
    "Bread is made from flour, water and yeast.",
    "Birds build nests in spring.",
    "A year has twelve months.",
    "Wood floats, stone sinks.",
    "Cows eat grass and give milk.",
    "Owls hunt at night.",
    "Copper carries electricity well.",
    "Sound is slower than light.",
    "Leaves fall in autumn.",
    "Fish breathe with gills.",
    "Paper is made from wood.",
    "Glass is made from sand.",
    "The heart pumps blood through the body.",
    "A compass needle points north.",
    "Rivers flow into the sea.",
    "Plants need light to grow.",
    "Honey keeps for many years.",
    "Snow is made of small crystals.",
    "The wind turns the mill.",
    "Wool comes from sheep.",
    "A triangle has three sides.",
    "Most cars have four wheels.",
    "Lemons taste sour.",
    "Sugar tastes sweet.",
    "Night follows day.",
    "Thunder comes after lightning.",
    "Camels store fat in their humps.",
    "Bats are not birds.",
    "Whales breathe air.",
    "Oil floats on water.",
    "Metal expands when it gets warm.",
    "Steam is hot.",
)
REAL_CAPITALS: tuple[tuple[str, str], ...] = (
    ("France", "Paris"),
    ("Italy", "Rome"),
    ("Spain", "Madrid"),
    ("Japan", "Tokyo"),
    ("China", "Beijing"),
    ("Egypt", "Cairo"),
    ("Norway", "Oslo"),
    ("Sweden", "Stockholm"),
    ("Poland", "Warsaw"),
    ("Greece", "Athens"),
    ("Kenya", "Nairobi"),
    ("Peru", "Lima"),
    ("Cuba", "Havana"),
    ("Austria", "Vienna"),
    ("Hungary", "Budapest"),
    ("Portugal", "Lisbon"),
    ("Ireland", "Dublin"),
    ("Canada", "Ottawa"),
    ("Chile", "Santiago"),
    ("Thailand", "Bangkok"),
    ("Turkey", "Ankara"),
    ("Finland", "Helsinki"),
)
EN_WORDS: tuple[str, ...] = tuple(
    (
        "able about above accept across address after again against agree allow almost alone along already also always among amount animal "
        "another answer anybody appear arrange arrive assistant attention away balance basket beautiful because become before begin behind believe "
        "below better between beyond borrow bottle bottom branch break breakfast bring brother build button calendar camera capital careful "
        "carry category centre certain change cheap choice choose circle clerk clothing coin collect colour comma common compare complete "
        "continue convert correct count country cover currency custom daily danger decide deliver describe different difficult direction discover "
        "distance divide double dozen during early earth easily either electric empty enough enter equal evening every exact example except "
        "expect explain extract famous feather field figure final find finger finish first flag follow foreign forget format forward friendly "
        "furniture future general give government great greater group grow guess happen healthy heater helpful history holiday household "
        "however hundred idea important inch include increase insect inside instead invite island join journey juice just kettle kind kitchen "
        "knowledge ladder language large laptop later laugh learn least leave letter light line listen little local lower machine manner many "
        "map matter maybe meaning measure member mention message metre middle minute mirror mistake money month mountain move multiply music "
        "name narrow nation nature nearly necessary neighbour neither never next noise normal notice number object odd offer often once only "
        "open opposite order ordinary outside own package page parcel part pattern people perhaps period person picture piece pieces plan "
        "please pleasure plenty plug point polite possible power practice press pretty price printer private problem produce promise proper "
        "public quarter question quick quiet quite radio rather reach ready real reason receive record remember remove repeat reply report rest "
        "result return right ring road round router safe same season second sentence separate serious several shape share shell shopping short "
        "should side sign silver similar simple since single sister size small smaller smile social some sort sound space special speech spell "
        "spend spring square stage stand start stay still stone store story straight strange street strong subtract such sudden sugar suggest "
        "sum summer supply sure surface sweet system table take tall taste teach tell text thank than there thick thing think thousand through "
        "ticket tidy times today together tomorrow tool total touch toward tower train travel trust turn twice type uncle under unit until "
        "unplug upper useful usual valley value vegetable vehicle very visit voice wait walk wall want warm watch weather week weight welcome "
        "wheel where whether which while whole wide window winter wish within without wonder wonderful wood word world worth write wrong year "
        "yesterday yet young centimetres metres minutes months weeks years days hours alphabetical antonym ISO comma list larger"
    ).split()
)

ZH_FACTS: tuple[str, ...] = (
    "水在零度结冰",
    "月亮绕着地球转",
    "蜜蜂采花酿蜜",
    "铁放在潮湿的地方会生锈",
    "太阳从东边升起",
    "面粉可以做馒头和面条",
    "冬天白天短，夜晚长",
    "鱼用鳃呼吸",
    "纸是用木头做的",
    "盐能溶在水里",
    "秋天树叶会变黄",
    "骆驼能在沙漠里走很久",
    "心脏把血送到全身",
    "江河最终流入大海",
    "植物生长需要阳光、空气和水",
    "三角形有三条边",
    "声音比光慢",
    "雪花有六个角",
    "羊毛可以织成毛衣",
    "茶叶要放在干燥的地方",
    "牛吃草，产牛奶",
    "石头沉在水底，木头浮在水面",
    "打雷之前先看见闪电",
    "铜线容易导电",
    "地球每天自转一圈",
    "种子发芽需要合适的温度",
    "蝙蝠不是鸟",
    "玻璃是用沙子烧成的",
    "糖是甜的，柠檬是酸的",
    "风能推动风车",
    "病菌太小，眼睛看不见",
    "岩石经过风吹雨打会慢慢变成土壤",
    "金属受热会膨胀",
    "云是由许多小水滴组成的",
    "人每天应当喝足够的水",
    "黑夜过去就是白天",
    "下雨以后空气更新鲜",
    "图书馆里要保持安静",
)
ZH_WORDS: tuple[str, ...] = tuple(
    (
        "阳光 氧气 养分 叶绿素 光合 粮食 蔬菜 物价 货币 银行 利率 提高 控制 计算机 数据 总结 规律 程序 质量 模型 检验 识别 翻译 地壳 释放 能量 振动 板块 震级 "
        "破坏 程度 房屋 伤亡 窗户 高大 家具 折射 反射 弧形 光带 颜色 偏折 背对 清晨 傍晚 疫苗 病菌 制剂 接种 免疫 系统 记忆 发热 正常 保护 体弱 间隔 加强 "
        "保险 风险 分担 保费 赔偿 合同 损失 意外 后果 减轻 潮汐 吸引 周期 涨落 渔民 港口 复利 利息 本金 增长 欠债 负担 存钱 指南针 磁场 辨别 方向 磁针 罗盘 "
        "民主 投票 成员 意见 规则 结果 压力 尊重 公开 信任 发酵 微生物 分解 糖分 酵母 面团 松软 酸奶 泡菜 酱油 容器 杂菌 催化剂 播撒 飞机 火箭 缓解 旱情 冰雹 "
        "睡眠 大脑 恢复 整理 屏幕 推迟 成年 固定 作息 供求 商品 数量 需要 决定 价格 上升 生产 丰收 预期 密码 加密 密文 钥匙 算法 浏览器 证明 改动 季风 海洋 陆地 "
        "干旱 农事 版权 作者 作品 权利 同意 复制 侵权 引用 注明 出处 自由 软件 照片 杠杆 支点 重物 省力 距离 剪刀 天平 用力 生态 平衡 环境 稳定 状态 食物 链条 "
        "外来 物种 迅速 占据 地盘 砍伐 水土 流失 资金 存款 贷款 期限 二维码 方格 记录 图形 机器 定位 污损 扫描 网址 付款 节气 古人 位置 划分 播种 收割 气候 "
        "差别 习惯 拖延 任务 模糊 逃避 步骤 轻松 责备 解决 问题 旅行 天气 衣服 证件 现金 行程 药品 手机 充电器 门窗 预留 换车 贵重 物品 随身 效率 安静 时段 复述 "
        "错题 休息 房间 互相 讲解 回顾 重点 健康 油炸 熬夜 定期 检查 牙齿 视力 久坐 肩膀 饮料 愉快 换季 增减 节约 用电 电器 能耗 空调 冰箱 自然光 清理 过滤 "
        "室内 植物 浇水 土壤 散射 擦拭 叶片 枯黄 枝叶 花盆 排水 隔离 面试 公司 业务 能力 例子 提前 到达 整洁 得体 简历 感谢信 工作 事项 成果 诚实 分析 抱怨 "
        "计划 语言 简短 空话 同事 开头 防范 网络 诈骗 陌生 链接 验证码 转账 确认 警惕 收益 承诺 更新 威胁 报警 提醒 老人 小狗 窝 散步 巧克力 葡萄 奖励 打骂 "
        "牵引绳 洗澡 梳毛 情绪 会议 议程 材料 邀请 必要 指定 准时 议题 发言 分工 一致 家常菜 简单 切好 开火 火候 生熟 用量 出锅 灶台 图书馆 阅览室 儿童 居民 "
        "邻近 维修 更换 木板 路灯 运动会 比赛 长跑 跳绳 拔河 邻里 联系 紧密 公交 线路 车辆 污水 处理站 鱼群 社区 食堂 独居 诊所 医生 值班 急病 患者 连夜 "
        "灯会 街道 悬挂 手工 灯笼 戏曲 表演 推广 垃圾 分类 小区 安排 回收 概括 摘要 报道 压缩 短文 影响 变化 投入 筹备 介绍 盼望 负责人 狐狸 兔子 木匠 渔夫 "
        "牧羊 刺猬 面包师 松鼠 邮差 森林 海边 山脚 雪谷 河流 城墙 麦田 熄灭 唱歌 星星 梯子 风声 耳朵 种子 发光 地图 冲断 唯一 同伴 相信 起雾 受伤 乌鸦 沉默 "
        "石匠 迷路 青蛙 商人 灯塔 奶奶 面包 外套 挡雨 火种 耐心 帮助 宝物 勇气 愿望 善意 童话 寓言 睡前 主角 题材 道理 编写 结尾 悄悄 犹豫 应用题 找回 店员 "
        "合计 步骤 理由 汽车 出发 速度 千米 中途 行驶 路程 到达 推理 条件 次序 年纪 最矮 逻辑 建议 清单 要点 注意 亲爱 道歉 改期 推荐 顺利 期待 回信 聚会 "
        "方便 保证 搬家 景色 订票 餐馆 火锅 烧烤 川菜 饺子 味道 鲜美 汤头 浓郁 油腻 怪味 清淡 服务员 热情 周到 上菜 老板 水果 态度 恶劣 扫码 点单 干净 舒服 "
        "装修 情调 黏糊 吵闹 纸巾 实惠 分量 离谱 可怜 结账 人均 会员卡 酒店 民宿 旅馆 宾馆 客栈 机场 快捷 宽敞 明亮 霉味 床单 污渍 隔音 单人床 面积 前台 入住 "
        "行李 冷淡 押金 早餐 种类 丰富 煎饼 惊喜 白粥 新鲜 包子 地铁 景点 施工 导航 老城 清晰 细腻 滑动 流畅 坏点 触摸 电池 耐用 烫手 鼓包 拍照 出色 人像 失真 "
        "对焦 镜头 相册 界面 卡死 广告 烦人 重启 预装 主题 电影 国产 动画 悬疑 喜剧 剧情 紧凑 感人 合情合理 拖沓 无聊 漏洞 莫名其妙 演员 真实 眼神 配角 精彩 "
        "台词 尴尬 配音 话剧团 导演 画面 特效 震撼 讲究 昏暗 摇晃 头晕 立体 山区 拍摄 音乐 动听 配乐 恰到好处 场面 钢琴 方言 快递 包裹 外卖 预计 中转 结实 完好 "
        "泡沫 破损 压扁 稀烂 洒 面单 中号 送货 柜子 凭号 取件 签收 短信 客服 及时 投诉 下文 推卸 规定 查询 网课 英语 画画 健身 私教 培训 驾校 生动 负责 照顾 "
        "进度 课件 迟到 骂人 轮流 实用 贴近 空洞 过时 宣传 教材 收费 合理 学费 资料 退费 灵活 请假 补课 答疑 约课 拥挤 失望 满意 后悔 无语 浪费 超出 上当 "
        "退款 佩服 恭喜 体会 成功 及格 可惜 缺点 糟糕 总的来说 讨厌 喜欢 中立 积极 消极 一般 感觉 参考 补充 信息 如实 裂纹 配件 图片 订单号 换货 账户 运费 承担 "
        "土豆 豆腐 茄子 白菜 南瓜 青椒 蘑菇 番茄 木耳 胡萝卜 微辣 酸甜 咸香 下饭 口味 调料 切块 切片 煮软 翻动 粘锅 包间 圆桌 院子 座位 保留 取消 贵姓 预算 宽裕 "
        "节假日 风景 小吃 老街 爬山 展览 数学 物理 历史 编程 书法 基础 分心 半途而废 坚持 目标 打勾 头疼 腰酸 失眠 咳嗽 难受 饮食 原因 就医 加重 尽快 助手 乐于 "
        "编造 准确 礼貌 顾问 语气 铅笔 笔记本 牛奶 雨伞 书包 足球 毛巾 水杯 茶叶 鸡蛋 台灯 手套 斤 支 盒 把 条 盏 副"
    ).split()
)

ZH_CHARACTERS: str = (
    "步每约给万它此项目因并筹其改什介绍根表往谁所该买今继续盼示首共千休汽米少住顺段需总桥准按连吴磊响替王芳何赵敏孩刘陈孙浩涛"
    "之付辆封而求句亲爱距始郑直读概已云除假十希北现设正使建睡溪故系维如举祝整湖垃圾湾阅岭诊字懂法及致况释压晨部闻办联遇远报识"
    "己关犹豫抓启社赶只摘矮例杂众统迷注式背春运唱歌颗康熄灭楚供借村基节检梯乌鸦原传案邀聚歉狐狸渔鸡蛋鼠守茶存未显思列涨苹巧增"
    "篇寓逻辑逐兔却邮牧女必越尽许古敢善铅井蛙独饭省荐被拔刺猬愿儿附鱼固层药版森弯陪跳紧轮齐急患或宝搬植随与墙钥匙易虹勇满笼戏"
    "曲倍脱挡洪冲断然朋友否麦田录播膨胀范降唯丢恢滴落靠杠杆彩拖遍质脑突西养反惯破具秋美趣模够磁链享才较颜饮围业屏幕免壳振农普"
    "环境稳状催技术属侵组织碳剪尊份绕硬棒训练型烈散弧防络诈骗陆性象般贷避辨喝绿素坚迅占偏研允央银控浇另泡酱宜刀欠债夏曾飞箭摸"
    "庭港掉母束限赔傍界浏适扫描混深罗翻译逃缓端击陌洗忙阻止粮蔬甜侧尝呼奖励代擦冬孔肩膀选标穿初炒牙视灶喂克葡萄牵砍伐管益承诺"
    "熬诚抱怨各偿签愉澡梳拆骤威枯枝印至攒桶窝盐且客昨评非退拍递妈楼寄像毁超驾私悬零培浪川国镜厚池抢阵悔剩饺吵贴宾冷礼貌英香舒"
    "谈鲜糟左饱恶劣疼灵凑垫精操佩汤滑嘴细尴尬念霉触漏百昏暗押搭虽恰施煎饼挤宽肉股凭兄弟论钢琴旧烫寸稀烂蓝浓柜毫黏永右际洒肯咸"
    "讨厌闷鼓妙恭叫招缺误您欢座悉哪困椒将蘑菇瓜煮番胡萝腰逛睛史爬喘咳嗽怕废展裂纹木杯足球毛巾台灯手套伞盒副盏支斤"
)
"""Common characters that the words above use seldom or not at all."""
